"""What happened in a workspace, as one HTML file that needs no network, or served live."""
