"""How the shipped weights were made: pictures in, weights and their card out, tables that say how good they are.

Needs torch, numpy, Pillow and safetensors only, so that it runs on a bare GPU machine.
"""
