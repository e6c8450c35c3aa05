// Curves begin after the table's filter, which decides which of them are drawn.
startPlots(document);
queueMicrotask(() => startCurves(document));
