"""The tables and figures of improved MCSD (Lu et al., 2024)."""
