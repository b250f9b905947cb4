"""The intermediate representations: what (attention), how (schedule), what × how (kernel)."""
