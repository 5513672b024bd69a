"""The report as one self-contained HTML page: sections, figures, and the data beneath them.

Every figure and number comes from the Examination, from portraits of kernels, or from recorded tables;
names from recordings reach the page only through templates that escape them, and through JSON.
"""
