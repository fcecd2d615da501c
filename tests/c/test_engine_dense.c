/* test_engine_dense.c: each kernel's layers against sums in double, the same bits whatever the rows
 * and the threads, and activations over all magnitudes. */
#include <float.h>
#include <math.h>
#include <pthread.h> /* the team's */

#include "base/error.h"
#include "engine/team.h"
#include "engine_files.h"

enum { WIDTH_MAX = 500, ROWS_MAX = 60 };

static double activated(double value, uint32_t activation) {
    if (activation == LM_ACTIVATION_RELU) return value < 0 ? 0 : value;
    if (activation == LM_ACTIVATION_SIGMOID) return 1 / (1 + exp(-value));
    return activation == LM_ACTIVATION_TANH ? tanh(value) : value;
}

/* One linear layer of random size against double. */
static void test_layer(const struct lm_dense_kernel *kernel, uint64_t *random) {
    static float input[ROWS_MAX * WIDTH_MAX], output[ROWS_MAX * (WIDTH_MAX + 64)];
    static float weights[(WIDTH_MAX + 64) * WIDTH_MAX], bias[WIDTH_MAX + 64];
    uint32_t inputs = 1 + check_below(random, WIDTH_MAX), rows = 1 + check_below(random, 20);
    uint32_t outputs = 1 + check_below(random, WIDTH_MAX);
    uint32_t padded = (uint32_t)lm_padded_outputs(outputs), activation = check_below(random, 4);
    for (uint32_t i = 0; i < rows * inputs; i++)
        input[i] = (float)check_below(random, 201) / 100 - 1;
    for (uint32_t i = 0; i < padded * inputs; i++)
        weights[i] = (float)check_below(random, 201) / 100 - 1;
    for (uint32_t i = 0; i < padded; i++) bias[i] = (float)check_below(random, 201) / 100 - 1;
    struct lm_dense_task task = {input,   inputs, output, padded, rows,      inputs,
                                 weights, bias,   0,      padded, activation};
    CHECK_AT("%s: %u rows, %u -> %u, activation %u", kernel->name, rows, inputs, outputs,
             activation);
    kernel->linear(&task);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t o = 0; o < outputs; o++) {
            uint32_t first = o / LM_PANEL * LM_PANEL, width = padded - first;
            if (width > LM_PANEL) width = LM_PANEL;
            double sum = bias[o], size = fabs(sum); /* the terms' */
            for (uint32_t i = 0; i < inputs; i++) {
                double term = (double)input[row * inputs + i] *
                              weights[(size_t)first * inputs + i * width + o - first];
                sum += term;
                size += fabs(term);
            }
            double expected = activated(sum, activation);
            double off = fabs(output[row * padded + o] - expected);
            /* The sum's error, and the activation's own, as below: sigmoid of 0 is not small. */
            CHECK(off <= 2e-6 * size + 4e-7 * fabs(expected));
        }
    }
}

/* One input and one weight of 1: the activations alone, and softmax. */
static void test_functions(const struct lm_dense_kernel *kernel) {
    static float weights[16], bias[16], output[16];
    for (int w = 0; w < 16; w++) weights[w] = 1;
    for (float x = 1e-30f; x < 1e30f; x *= 1.37f) {
        for (uint32_t a = LM_ACTIVATION_RELU; a <= LM_ACTIVATION_TANH; a++) {
            for (int sign = -1; sign <= 1; sign += 2) {
                float at = x * (float)sign;
                kernel->linear(
                    &(struct lm_dense_task){&at, 1, output, 16, 1, 1, weights, bias, 0, 16, a});
                double expected = activated(at, a), off = fabs(output[3] - expected);
                CHECK_AT("%s: activation %u of %g: %.9g, not %.9g", kernel->name, a, (double)at,
                         (double)output[3], expected);
                CHECK(off <= 4e-7 * fabs(expected) + 1e-38);
            }
        }
    }
    for (uint32_t count = 1; count < 70; count++) {
        float row[70];
        double sum = 0;
        for (uint32_t i = 0; i < count; i++) row[i] = (float)(i * 37 % 50) - 90;
        double most = -1000;
        for (uint32_t i = 0; i < count; i++) most = row[i] > most ? row[i] : most;
        for (uint32_t i = 0; i < count; i++) sum += exp(row[i] - most);
        kernel->softmax(row, count);
        for (uint32_t i = 0; i < count; i++) {
            double expected = exp((float)(i * 37 % 50) - 90 - most) / sum;
            CHECK(fabs(row[i] - expected) <= 1e-6 * expected + 1e-37);
        }
    }
    float nan = NAN;
    for (uint32_t a = LM_ACTIVATION_NONE; a <= LM_ACTIVATION_TANH; a++) {
        kernel->linear(&(struct lm_dense_task){&nan, 1, output, 16, 1, 1, weights, bias, 0, 16, a});
        CHECK_AT("%s: activation %u of NaN", kernel->name, a);
        CHECK(isnan(output[0]));
    }
}

/* A row's bits do not depend on the rows beside it, nor on the threads. */
static void test_same_bits(uint64_t *random) {
    static float input[ROWS_MAX * 400], alone[130], together[ROWS_MAX * 130];
    static struct lm_team team;
    struct engine_file file;
    struct lm_engine_view view;
    struct lm_engine engine;
    engine_make_dense(
        &file, (const uint32_t[]){400, 333, 260, 130},
        (const uint32_t[]){LM_ACTIVATION_TANH, LM_ACTIVATION_SIGMOID, LM_ACTIVATION_SOFTMAX}, 3,
        random);
    CHECK(lm_engine_view_open(&view, file.bytes, file.count) == 0);
    CHECK(lm_engine_open_view(&engine, &view) == 0);
    CHECK(lm_engine_hold_runners(&engine, 3) == 0);
    CHECK(lm_team_open(&team, 2, true) == 0);
    for (uint32_t i = 0; i < ROWS_MAX * 400; i++)
        input[i] = (float)check_below(random, 101) / 50 - 1;
    for (uint32_t turn = 0; turn < 60; turn++) {
        uint32_t rows = 1 + check_below(random, ROWS_MAX), row = check_below(random, rows);
        lm_engine_run(&engine, 2, input, (void *[]){together}, rows, turn % 2 ? &team : NULL);
        lm_engine_run(&engine, 1, input + row * 400, (void *[]){alone}, 1, turn % 3 ? &team : NULL);
        CHECK_AT("row %u of %u", row, rows);
        CHECK(memcmp(alone, together + row * 130, sizeof alone) == 0);
    }
    lm_team_close(&team);
    lm_engine_close(&engine);
    engine_file_close(&file);
}

struct tally {
    lm_atomic_u64 parts[1000];
};

static void count_part(void *argument, uint32_t part) {
    struct tally *tally = argument;
    lm_count_relaxed_u64(&tally->parts[part], 1); /* relaxed: read after the job */
}

/* The thread that starts helpers takes the signals that it took before. */
static void test_signals(void) {
    static struct lm_team team;
    sigset_t one, before, after;
    CHECK(sigemptyset(&one) == 0 && sigaddset(&one, SIGUSR1) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &one, &before) == 0);
    CHECK(lm_team_open(&team, 1, false) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, &after) == 0);
    for (int number = 1; number < SIGRTMAX; number++)
        CHECK(sigismember(&after, number) == (number == SIGUSR1));
    lm_team_close(&team);
}

/* As many helpers as a team may have, and one more. */
static void test_most_helpers(void) {
    static struct lm_team team;
    CHECK(lm_team_open(&team, LM_TEAM_MAX, false) == 0 && team.helper_count == LM_TEAM_MAX);
    lm_team_close(&team);
    CHECK(lm_team_open(&team, LM_TEAM_MAX + 1, false) == LUMEN_E_NOMEM && team.helper_count == 0);
}

/* Each part of each job is called once, whoever takes it. */
static void test_team(uint64_t *random) {
    static struct lm_team team;
    static struct tally tally;
    CHECK(lm_team_open(&team, 3, false) == 0);
    for (uint32_t job = 0; job < 400; job++) {
        uint32_t parts = 1 + check_below(random, job % 10 ? 20 : 1000);
        memset(&tally, 0, sizeof tally);
        if (job % 50 == 0) usleep(1000); /* the helpers sleep */
        lm_team_run(&team, count_part, &tally, parts);
        for (uint32_t p = 0; p < 1000; p++) {
            CHECK_AT("job %u, part %u of %u", job, p, parts);
            CHECK(lm_load_relaxed_u64(&tally.parts[p]) == (p < parts)); /* relaxed: it is over */
        }
    }
    lm_team_close(&team);
}

int main(void) {
    uint64_t random = check_seed();
    check_watchdog(120, "the tests of dense engines");
    uint32_t kernels = 0;
    for (const struct lm_dense_kernel *kernel; (kernel = lm_dense_choose(kernels)); kernels++) {
        for (uint32_t turn = 0; turn < 60; turn++) test_layer(kernel, &random);
        test_functions(kernel);
    }
    CHECK(kernels >= 1);
    test_same_bits(&random);
    test_signals();
    test_most_helpers();
    test_team(&random);
    return check_finish("test_engine_dense");
}
