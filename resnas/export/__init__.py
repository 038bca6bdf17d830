"""What a study has found, for use elsewhere: a trained model as a folder of weights, values, evidence and plain torch.

`choice` finds the architecture that is meant, `trained` reads what was trained, `evidence` gathers what the study says
of it, `card` words that, `modules` writes the topology as plain torch, `writing` writes the folder, `loading` reads it.
"""
