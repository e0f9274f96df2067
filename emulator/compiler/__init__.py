"""BMv2 JSON to native code: one LLVM module per program, with the entry points of `emulator.abi`."""
