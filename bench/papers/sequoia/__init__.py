"""The tables and figures of the Sequoia paper."""
