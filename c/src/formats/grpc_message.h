/* grpc_message.h: JSON as messages of gRPC, by the tables of grpc_schema.h: what the routes of HTTP
 * answer becomes what a client of gRPC reads. The JSON is this server's own; keys that a message
 * has no field for are left out. No state, no memory of its own: any thread.
 */
#ifndef LM_FORMATS_GRPC_MESSAGE_H
#define LM_FORMATS_GRPC_MESSAGE_H

#include "formats/grpc_schema.h"
#include "wire/protobuf.h"

/* A message is at most so much longer than its JSON: a number of one digit may need ten bytes. */
enum { LM_GRPC_MESSAGE_TIMES = 6, LM_GRPC_MESSAGE_MORE = 64 };

/* The reply of a method. false: the JSON is none, or there is no room. */
bool lm_grpc_from_json(enum lm_grpc_method_index method, const char *json, size_t bytes,
                       struct lm_pb_writer *writer);
/* The reply of an inference, but for its tensors. `sizes` are the bytes of each output's tensor
 * behind the JSON, of LM_TENSORS_MAX at most; 0: it is not in the reply. Returns how many outputs
 * there are, or -1 as false above. */
int lm_grpc_from_infer_json(const char *json, size_t bytes, struct lm_pb_writer *writer,
                            uint64_t *sizes);
/* Writes the sentence of an error's JSON, terminated; of a text that is no JSON, the text. */
void lm_grpc_error_text(const char *json, size_t bytes, char *out, size_t room);

#endif
