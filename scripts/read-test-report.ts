/**
 * What a test run amounts to, read from the runner's JSON report and its exit status. Apart from test.mjs so that the ways in which a run can look green
 * without being so (no report, a file that failed to load, an error outside every test) are tested without running a runner.
 */

export interface TestCount {
  passed: number;
  failed: number;
  skipped: number;
}

/** The part of vitest's JSON report that is read here. */
interface Report {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests: number;
  numTodoTests: number;
  testResults: { status: string; assertionResults: { status: string }[] }[];
}

/** `text`: the report, undefined when there is none. `exitStatus`: the runner's. */
export function readReport(text: string | undefined, exitStatus: number): TestCount {
  let report: Report;
  try {
    report = JSON.parse(text ?? '') as Report;
  } catch {
    return { passed: 0, failed: 1, skipped: 0 };
  }
  const brokenFiles = report.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
  ).length;
  const failed = report.numFailedTests + brokenFiles;
  return {
    passed: report.numPassedTests,
    failed: failed === 0 && exitStatus !== 0 ? 1 : failed,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

export const sumReports = (reports: readonly TestCount[]): TestCount =>
  reports.reduce(
    (sum, { passed, failed, skipped }) => ({ passed: sum.passed + passed, failed: sum.failed + failed, skipped: sum.skipped + skipped }),
    { passed: 0, failed: 0, skipped: 0 },
  );

export const summaryLine = ({ passed, failed, skipped }: TestCount): string =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
