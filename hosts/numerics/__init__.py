"""Numbers to int32 lanes and back: data types, block exponents, encodings, and a tensor's rounds. Pure."""
