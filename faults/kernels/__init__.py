"""CUDA kernels with one flaw each, beside their mended forms."""
