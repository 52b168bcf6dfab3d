"""How the labs are stored: small diffs, outputs that can be trusted, and an index that cannot drift from the files.

`python -m labllm.notebooks` puts every lab into its normal form and regenerates what is generated; `--check` only
compares; `--fill` runs a lab and keeps the outputs of its recorded cells.
"""
