"""The tables and figures of GSD (Gong et al., 2024)."""
