"""The `rtmem` command. Heavy imports stay inside the commands: `rtmem --help` must not wait for LangGraph."""
