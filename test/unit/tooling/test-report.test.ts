import { expect, test } from 'vitest';
import { readReport, summaryLine, sumReports } from '../../../scripts/read-test-report.ts';

const report = (overrides: Record<string, unknown> = {}) =>
  JSON.stringify({ numPassedTests: 3, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [], ...overrides });

test('a green report counts what passed and what was skipped', () => {
  expect(readReport(report({ numPendingTests: 1, numTodoTests: 1 }), 0)).toEqual({ passed: 3, failed: 0, skipped: 2 });
});

test('a file that could not be loaded is a failure although none of its tests failed', () => {
  const testResults = [{ status: 'failed', assertionResults: [] }];

  expect(readReport(report({ testResults }), 1)).toEqual({ passed: 3, failed: 1, skipped: 0 });
});

test('a file with a failed test is not counted twice', () => {
  const testResults = [{ status: 'failed', assertionResults: [{ status: 'failed' }, { status: 'passed' }] }];

  expect(readReport(report({ numFailedTests: 1, testResults }), 1)).toEqual({ passed: 3, failed: 1, skipped: 0 });
});

test('an error outside every test is a failure: the runner says so by its exit status only', () => {
  expect(readReport(report(), 1)).toEqual({ passed: 3, failed: 1, skipped: 0 });
});

test.each([undefined, '', '{"numPassed'])('no report, or half of one, is a failure: %s', (text) => {
  expect(readReport(text, 0)).toEqual({ passed: 0, failed: 1, skipped: 0 });
});

test('the last line names skipped tests only when there are any', () => {
  expect(summaryLine(sumReports([]))).toBe('0 passed, 0 failed');
  expect(
    summaryLine(
      sumReports([
        { passed: 2, failed: 1, skipped: 0 },
        { passed: 1, failed: 0, skipped: 4 },
      ]),
    ),
  ).toBe('3 passed, 1 failed, 4 skipped');
});
