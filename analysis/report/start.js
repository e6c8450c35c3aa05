// Set going after the tables are: their filter says which curves are seen.
queueMicrotask(startCurves);
