"""From a model file's tensors to float32 arrays: names per family, quantised types, reading in ranges."""
