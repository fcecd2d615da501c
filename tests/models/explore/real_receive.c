/* real_receive.c: receive.c for its lm_receive_hand_over. The rest is not reached, and its
 * lm_receive_continue gives way to the scenario's. */
#define lm_receive_continue real_receive_continue
#include "flow/receive.c"
