"""Decision models (Lu et al., 2024, section 3.3): what they learn from, how they are trained, where they are kept."""
