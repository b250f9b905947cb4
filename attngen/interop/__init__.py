"""Doors to other libraries, each imported on its own: ``attngen.interop.onnx``."""
