"""Stage 2, traces -> adapters: selects the runs worth learning from and trains one LoRA adapter per role."""
