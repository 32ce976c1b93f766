"""Small random models of transformers' architectures, decoded alone and as trees, and compared with the stock model."""
