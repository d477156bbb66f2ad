"""Speed and memory, as ratios within one run: machines are shared and noisy, so no figure stands alone."""
