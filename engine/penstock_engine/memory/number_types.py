"""Number types of weights and KV cache, and their sizes in bytes. Imports no torch."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "float8_e4m3fn": 1}

# KV cache dtypes by vLLM's names. fp8 is e4m3, the float8 with hardware support.
KV_DTYPES = {"int8": "int8", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn"}
# The float32 scale of each token and head in a quantized KV cache.
KV_SCALE_BYTES = 4
