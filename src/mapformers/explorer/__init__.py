"""A trained model to walk with: its streaming step as a graph that a browser or onnxruntime computes."""
