"""Programs that train on CPU ranks through gloo."""
