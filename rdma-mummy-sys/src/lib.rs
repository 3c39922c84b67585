#![doc = "C API"]
