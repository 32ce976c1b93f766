"""Artifacts of no paper: equal budgets, the smoke run, the draft's temperature."""
