/**
 * What a test run amounts to, read from the runner's JSON report and its exit status. Apart from test.mjs so that the ways in which a run can look green
 * without being so (no report, a file that failed to load, an error outside every test) are tested without running a runner.
 */

/** `text`: the report, undefined when there is none. `status`: the runner's exit status. */
export function readReport(text, status) {
  let report;
  try {
    report = JSON.parse(text ?? '');
  } catch {
    return { passed: 0, failed: 1, skipped: 0 };
  }
  const brokenFiles = report.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
  ).length;
  const failed = report.numFailedTests + brokenFiles;
  return {
    passed: report.numPassedTests,
    failed: failed === 0 && status !== 0 ? 1 : failed,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

export const sumReports = (reports) =>
  reports.reduce(
    (sum, { passed, failed, skipped }) => ({ passed: sum.passed + passed, failed: sum.failed + failed, skipped: sum.skipped + skipped }),
    { passed: 0, failed: 0, skipped: 0 },
  );

export const summaryLine = ({ passed, failed, skipped }) =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
