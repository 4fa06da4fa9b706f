"""Judging attributions: masking (faithfulness), human rationales (plausibility), and whether differences mean much."""
