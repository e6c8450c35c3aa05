"""Export of a trained model to other programs."""
