/* Runs every suite of tests/test_*.c; Check's own environment variables choose among them
 * (CK_RUN_SUITE, CK_RUN_CASE, CK_TAP_LOG_FILE_NAME, CK_FORK). MOEREF_LONG=1 adds the long cases. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define SUITE(name) Suite *suite_##name(void);
#include "suites.inc"
#undef SUITE

int main(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "120", 0); /* 4 s is little under a sanitizer on a busy machine */
    SRunner *runner = srunner_create(NULL);
#define SUITE(name) srunner_add_suite(runner, suite_##name());
#include "suites.inc"
#undef SUITE
    srunner_run_all(runner, CK_ENV);
    int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (run == 0) fputs("no test ran: a name in CK_RUN_SUITE or CK_RUN_CASE matches nothing\n", stderr);
    return run == 0 || failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
