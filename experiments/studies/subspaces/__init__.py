"""Does a subspace of codes or residual streams carry the operation alone, or the operands alone?"""
