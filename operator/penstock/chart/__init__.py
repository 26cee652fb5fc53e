"""The objects that install Penstock: CRDs, operator, gateway and their access rights."""
