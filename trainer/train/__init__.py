"""The bundled trainer: data order, model, checkpoints, metrics and the loop. Only what computes imports torch."""
