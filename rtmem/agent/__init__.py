"""A turn of an agent, and the agents themselves: what is above the savers and below the gateway."""
