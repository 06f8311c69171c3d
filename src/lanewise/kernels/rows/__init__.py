"""Operations on whole rows, one file each: softmax, and LayerNorm and RMSNorm, alone or of a sum.

The four norms share their kernels (`norm_*`): which one it is, is a constant when they are compiled.
"""
