"""Delivery: from the address of a seed manifest to the verified bytes of a model on this device."""
