/* test_uring_features.c: kernels that are known to be bad, and the names that hide features. */
#include "ring/uring_features.h"

#include "base/error.h"
#include "base/limits.h"
#include "check.h"

static enum lm_uring_verdict verdict_of(const char *release) {
    return lm_uring_judge(lm_kernel_parse(release)).verdict;
}

static void check_releases(void) {
    CHECK(lm_kernel_parse("6.1.0-13-amd64") == LM_KERNEL(6, 1, 0));
    CHECK(lm_kernel_parse("6.18.44-fc-v669") == LM_KERNEL(6, 18, 44));
    CHECK(lm_kernel_parse("5.15.167.4-microsoft-standard-WSL2") == LM_KERNEL(5, 15, 167));
    CHECK(lm_kernel_parse("4.19") == LM_KERNEL(4, 19, 0));
    CHECK(lm_kernel_parse("6.7.y") == LM_KERNEL(6, 7, 0));
    CHECK(lm_kernel_parse("4.9.337") == LM_KERNEL(4, 9, 255)); /* does not spill into 4.10 */
    CHECK(lm_kernel_parse("6.6.99999999999999999999") == LM_KERNEL(6, 6, 255));
    static const char *const none[] = {"",     "6",    "6.",   ".6",  "linux",
                                       "-6.1", "6.-1", " 6.1", "6 .1"};
    for (size_t n = 0; n < sizeof none / sizeof none[0]; n++) {
        CHECK_AT("'%s'", none[n]);
        CHECK(lm_kernel_parse(none[n]) == 0);
    }
    check_where[0] = '\0';
}

/* F4 */
static void check_known_bad(void) {
    static const struct {
        const char *release;
        enum lm_uring_verdict verdict;
    } cases[] = {
        {"5.14.21", LM_URING_FINE}, /* refused for its missing buffer rings, not by the list */
        {"5.15.0-89-generic", LM_URING_AVOID},
        {"5.15.300", LM_URING_AVOID},
        {"5.19.17", LM_URING_AVOID},
        {"6.0.0", LM_URING_AVOID},
        {"6.0.19", LM_URING_AVOID},
        {"6.1.0", LM_URING_FINE},
        {"6.6.0", LM_URING_FINE},
        {"6.6.1", LM_URING_ONE_SHOT_ACCEPT},
        {"6.6.9", LM_URING_ONE_SHOT_ACCEPT},
        {"6.6.10", LM_URING_FINE},
        {"6.7.3", LM_URING_FINE},
        {"6.7.4-arch1-1", LM_URING_ONE_SHOT_ACCEPT},
        {"6.7.5", LM_URING_FINE},
        {"6.18.44", LM_URING_FINE},
        {"unreadable", LM_URING_FINE}, /* the self-test decides */
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_AT("%s", cases[c].release);
        CHECK(verdict_of(cases[c].release) == cases[c].verdict);
        const char *why = lm_uring_judge(lm_kernel_parse(cases[c].release)).why;
        CHECK((why[0] != '\0') == (cases[c].verdict != LM_URING_FINE));
    }
    check_where[0] = '\0';
}

/* F3 */
static void check_mask(void) {
    struct lm_uring_features found = {0};
    CHECK(lm_uring_mask_parse(NULL, &found) == 0 && found.masked == 0);
    CHECK(lm_uring_mask_parse("", &found) == 0 && found.masked == 0);
    CHECK(lm_uring_mask_parse("defer_taskrun, setup,,buffer_rings,", &found) == 0);
    CHECK(found.masked == (LM_MASK_DEFER_TASKRUN | LM_MASK_SETUP | LM_MASK_BUFFER_RINGS));
    CHECK(lm_uring_mask_parse("kernel=5.15.0,self_test", &found) == 0);
    CHECK(found.kernel == LM_KERNEL(5, 15, 0) && (found.masked & LM_MASK_SELF_TEST));
    static const char *const wrong[] = {"defer",   "defer_taskruns", "setup,x",
                                        "kernel=", "kernel=6",       "SETUP"};
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
        CHECK_AT("'%s'", wrong[w]);
        CHECK(lm_uring_mask_parse(wrong[w], &found) == LUMEN_E_INVALID);
        CHECK(strstr(lm_error_last(), "LUMEN_URING_MASK"));
    }
    check_where[0] = '\0';
    setenv("LUMEN_URING_MASK", "submit_all", 1);
    CHECK(lm_uring_features_read(&found) == 0);
    CHECK(found.masked == LM_MASK_SUBMIT_ALL && found.kernel != 0);
}

int main(void) {
    check_releases();
    check_known_bad();
    check_mask();
    return check_finish("test_uring_features");
}
