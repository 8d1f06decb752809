"""Every exchange with Redis, as generators that ask for round trips and never make one."""
