/* settings.h: what lumen_open refuses. Python checks the same before, all at once and with places
 * in the file; this is for every other caller, and stops at the first problem. Control thread. */
#ifndef LM_PARTS_SETTINGS_H
#define LM_PARTS_SETTINGS_H

#include "lumen.h"

/* Returns 0 or LUMEN_E_INVALID with the sentence. */
int lm_settings_check(const lumen_config *config);
/* Returns 0, or LUMEN_E_INVALID naming the setting, its range and what was found. */
int lm_setting_in_range(const char *name, uint64_t found, uint64_t least, uint64_t most);
/* The same for a rate and its burst. */
int lm_setting_rate(const char *name, double rate, uint32_t burst);

#endif
