"""Every Redis command rtmem sends and how each reply is read. Pure: nothing here does I/O."""
