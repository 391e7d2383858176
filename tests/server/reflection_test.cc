// Server reflection over bare bytes: what a tool like grpcurl asks.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/server/harness.h"

namespace quire::server {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using ::testing::IsSupersetOf;

// Fields of grpc.reflection.v1alpha.
constexpr int kFileContainingSymbol = 4;
constexpr int kListServices = 7;
constexpr int kFileDescriptorResponse = 4;
constexpr int kListServicesResponse = 6;
constexpr int kElement = 1;  // Of both responses.
constexpr int kName = 1;

// The values of a string, bytes or message field.
std::vector<std::string> Strings(const std::string& bytes, int field) {
  UnknownFieldSet message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  std::vector<std::string> values;
  for (int i = 0; i < message.field_count(); ++i) {
    const UnknownField& entry = message.field(i);
    if (entry.number() != field || entry.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    values.push_back(entry.length_delimited());
  }
  return values;
}

// One question and the elements of its answer.
std::vector<std::string> Ask(const std::shared_ptr<grpc::Channel>& channel, int field,
                             const std::string& value, int response_field) {
  UnknownFieldSet request;
  request.AddLengthDelimited(field, value);
  std::string bytes;
  request.SerializeToString(&bytes);
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer buffer(&slice, 1);

  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto wait = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  grpc::ByteBuffer reply;
  call->StartCall(nullptr);
  EXPECT_TRUE(wait());
  call->Write(buffer, nullptr);
  EXPECT_TRUE(wait());
  call->Read(&reply, nullptr);
  EXPECT_TRUE(wait()) << "no answer to " << value;
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(wait());
  grpc::Slice answer;
  EXPECT_TRUE(reply.DumpToSingleSlice(&answer).ok());
  const std::string text(reinterpret_cast<const char*>(answer.begin()), answer.size());
  const auto responses = Strings(text, response_field);
  if (responses.empty()) return {};
  return Strings(responses[0], kElement);
}

TEST(Reflection, C99_EveryServiceOfOursResolvesWithItsMessages) {
  Harness harness;
  const auto channel = harness.Channel();
  std::vector<std::string> services;
  for (const std::string& service : Ask(channel, kListServices, "", kListServicesResponse)) {
    services.push_back(Strings(service, kName).at(0));
  }
  const std::vector<std::string> ours = {"quire.v1.GenerationService", "quire.v1.EngineService",
                                         "quire.v1.StatsService"};
  EXPECT_THAT(services, IsSupersetOf(ours));
  for (const std::string& service : ours) {
    SCOPED_TRACE(service);
    const auto files = Ask(channel, kFileContainingSymbol, service, kFileDescriptorResponse);
    google::protobuf::SimpleDescriptorDatabase database;
    for (const std::string& file : files) {
      google::protobuf::FileDescriptorProto proto;
      ASSERT_TRUE(proto.ParseFromString(file));
      database.Add(proto);
    }
    const google::protobuf::DescriptorPool pool(&database);
    const auto* descriptor = pool.FindServiceByName(service);
    ASSERT_NE(descriptor, nullptr);
    EXPECT_GT(descriptor->method_count(), 0);
    for (int i = 0; i < descriptor->method_count(); ++i) {
      EXPECT_NE(pool.FindMessageTypeByName(descriptor->method(i)->input_type()->full_name()),
                nullptr);
      EXPECT_NE(pool.FindMessageTypeByName(descriptor->method(i)->output_type()->full_name()),
                nullptr);
    }
  }
}

}  // namespace
}  // namespace quire::server
