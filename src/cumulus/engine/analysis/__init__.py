"""What both engines find out about a program before they write code: order of factors, intervals, thresholds, signs."""
