#include "server/status.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <utf8proc.h>

#include <algorithm>
#include <cctype>

#include "base/status.h"
#include "compat/rpc_details.pb.h"
#include "quire/v1/generation.pb.h"

namespace quire::server {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/google.rpc.";

template <class Detail>
void AddDetail(const Detail& detail, std::string_view name, compat::RpcStatus* out) {
  auto* any = out->add_details();
  any->set_type_url(fmt::format("{}{}", kTypePrefix, name));
  detail.SerializeToString(any->mutable_value());
}

// Appends one printable rendering of what starts at `text` and returns how many bytes it took.
std::size_t AppendPrintable(std::string_view text, std::string* out) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  utf8proc_int32_t codepoint = -1;
  const auto length =
      utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &codepoint);
  if (length <= 0) {
    out->append(fmt::format("\\x{:02x}", bytes[0]));
    return 1;
  }
  const auto category = utf8proc_category(codepoint);
  if (codepoint == '\n') {
    out->append("\\n");
  } else if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
             category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP) {
    out->append(fmt::format("\\u{{{:x}}}", codepoint));
  } else {
    out->append(text.substr(0, static_cast<std::size_t>(length)));
  }
  return static_cast<std::size_t>(length);
}

}  // namespace

std::string PrintableMessage(std::string_view message) {
  constexpr std::size_t kRoomForTail = 40;
  std::string out;
  std::size_t at = 0;
  std::size_t last_fit = 0;     // Bytes of `out` that leave room for the tail …
  std::size_t last_fit_at = 0;  // … and of `message` that they stand for.
  while (at < message.size() && out.size() <= kMaxMessageBytes) {
    if (out.size() <= kMaxMessageBytes - kRoomForTail) {
      last_fit = out.size();
      last_fit_at = at;
    }
    at += AppendPrintable(message.substr(at), &out);
  }
  if (out.size() <= kMaxMessageBytes) return out;
  out.resize(last_fit);
  return out + fmt::format("… ({} more bytes)", message.size() - last_fit_at);
}

std::string FieldOf(std::string_view message) {
  const auto is_path = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '[' ||
           c == ']' || c == '-';
  };
  const auto end = std::find_if_not(message.begin(), message.end(), is_path);
  const std::string path(message.begin(), end);
  const std::string name = path.substr(0, path.find_first_of("[."));
  if (v1::SamplingParams::descriptor()->FindFieldByName(name) != nullptr) {
    return "sampling." + path;
  }
  const auto* request = v1::GenerateRequest::descriptor();
  if (request->FindFieldByName(name) != nullptr || request->FindOneofByName(name) != nullptr) {
    return path;
  }
  return "";
}

grpc::Status ToGrpc(const absl::Status& status, std::optional<absl::Duration> retry_after) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = PrintableMessage(AsStd(status.message()));

  compat::RpcStatus details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  if (code == grpc::StatusCode::INVALID_ARGUMENT) {
    if (std::string field = FieldOf(message); !field.empty()) {
      compat::BadRequest bad_request;
      auto* violation = bad_request.add_field_violations();
      violation->set_field(std::move(field));
      violation->set_description(message);
      AddDetail(bad_request, "BadRequest", &details);
    }
  }
  if (code == grpc::StatusCode::RESOURCE_EXHAUSTED && retry_after.has_value()) {
    compat::RetryInfo retry;
    const std::int64_t millis = std::max<std::int64_t>(absl::ToInt64Milliseconds(*retry_after), 1);
    retry.mutable_retry_delay()->set_seconds(millis / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<std::int32_t>(millis % 1000) * 1'000'000);
    AddDetail(retry, "RetryInfo", &details);
  }
  if (details.details().empty()) return {code, message};
  return {code, message, details.SerializeAsString()};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), AsAbsl(status.error_message())};
}

std::optional<absl::Duration> RetryAfterOf(const grpc::Status& status) {
  compat::RpcStatus details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& any : details.details()) {
    compat::RetryInfo retry;
    if (any.type_url() == fmt::format("{}RetryInfo", kTypePrefix) &&
        retry.ParseFromString(any.value())) {
      return absl::Seconds(retry.retry_delay().seconds()) +
             absl::Nanoseconds(retry.retry_delay().nanos());
    }
  }
  return std::nullopt;
}

}  // namespace quire::server
