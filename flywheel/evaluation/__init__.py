"""Teams on held-out questions: who plays (`arms`), what came of it (`results`), where failures began (`origins`)."""
