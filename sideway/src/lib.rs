#![doc = "sideway"]
