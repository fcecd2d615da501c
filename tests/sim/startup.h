/* startup.h: calls of the library that can be made to fail; startup_calls.c. */
#ifndef TESTS_SIM_STARTUP_H
#define TESTS_SIM_STARTUP_H

#include <stdbool.h>
#include <stdint.h>

enum startup_kind { STARTUP_ALLOCATION, STARTUP_CALL };

extern bool startup_verbose;
const char *startup_kind_name(enum startup_kind kind);
/* From now on the nth call of this kind fails; with `all` every later one too. */
void startup_arm(enum startup_kind kind, uint32_t n, bool all);
/* Returns the name of the first call that failed, or NULL. */
const char *startup_disarm(void);
/* Blocks and mappings of the library that are alive. */
uint32_t startup_blocks(void);
uint32_t startup_mappings(void);

#endif
