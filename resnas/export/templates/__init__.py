"""Files that an exported folder holds, kept as Python that is checked and tested; constants are filled in on export."""
